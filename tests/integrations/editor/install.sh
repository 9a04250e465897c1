#!/usr/bin/env bash
# Installs VS Code, as code-server, with the Node that it needs and the driver of its browser, into the folder that is named. What
# Debian has to provide is checked first: exit status 2, and what to install, if any of it is missing. A second run does nothing.
set -euo pipefail

NODE=24.21.0
CODE_SERVER=4.139.1 # VS Code 1.139.1
PLAYWRIGHT=1.65.0
FOLDER=$1

missing=()
for command in npm g++ make python3 pkg-config chromium; do
  command -v "$command" >/dev/null || missing+=("$command")
done
for package in libkrb5-dev libsecret-1-dev libx11-dev libxkbfile-dev; do
  dpkg-query --show --showformat '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if ((${#missing[@]})); then
  echo "make test-vscode needs packages of Debian that are not installed. Run:" >&2
  echo "  apt-get install ${missing[*]}" >&2
  exit 2
fi

versions="node $NODE, code-server $CODE_SERVER, playwright-core $PLAYWRIGHT"
[[ -f $FOLDER/installed && $(<"$FOLDER/installed") == "$versions" ]] && exit 0
echo "installing $versions into $FOLDER: some minutes, once"
rm -rf "$FOLDER"
mkdir -p "$FOLDER/node" "$FOLDER/code-server" "$FOLDER/driver"
FOLDER=$(cd "$FOLDER" && pwd)
quiet=(--no-save --no-audit --no-fund --loglevel=error)

npm install --prefix "$FOLDER/node" "${quiet[@]}" "node@$NODE"
export PATH="$FOLDER/node/node_modules/node/bin:$PATH"
headers=("$FOLDER"/node/node_modules/node/node_modules/node-linux-*)
export npm_config_nodedir="${headers[0]}"

# Its own installation script does not say what fails; these are its steps.
npm install --prefix "$FOLDER/code-server" "${quiet[@]}" --ignore-scripts "code-server@$CODE_SERVER"
vscode="$FOLDER/code-server/node_modules/code-server/lib/vscode"
npm install --prefix "$vscode" "${quiet[@]}" --omit=dev
npm install --prefix "$vscode/extensions" "${quiet[@]}" --omit=dev
ln -sfn code-linux.sh "$vscode/bin/remote-cli/code-server"
ln -sfn browser-linux.sh "$vscode/bin/helpers/browser.sh"

npm install --prefix "$FOLDER/driver" "${quiet[@]}" "playwright-core@$PLAYWRIGHT"
echo "$versions" >"$FOLDER/installed"
