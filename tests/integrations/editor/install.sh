#!/usr/bin/env bash
# Installs VS Code (code-server), the version of Node that it needs, and the browser driver into the folder FOLDER ($1). First it checks
# the Debian packages: if some are missing, it prints the apt-get command and exits with status 2. A second run does nothing.
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
  echo "make test-vscode needs Debian packages that are not installed. Run:" >&2
  echo "  apt-get install ${missing[*]}" >&2
  exit 2
fi

versions="node $NODE, code-server $CODE_SERVER with API proposal checks, playwright-core $PLAYWRIGHT"
[[ -f $FOLDER/installed && $(<"$FOLDER/installed") == "$versions" ]] && exit 0
echo "installing $versions into $FOLDER (a few minutes, only once)"
rm -rf "$FOLDER"
mkdir -p "$FOLDER/node" "$FOLDER/code-server" "$FOLDER/driver"
FOLDER=$(cd "$FOLDER" && pwd)
quiet=(--no-save --no-audit --no-fund --loglevel=error)

npm install --prefix "$FOLDER/node" "${quiet[@]}" "node@$NODE"
export PATH="$FOLDER/node/node_modules/node/bin:$PATH"
headers=("$FOLDER"/node/node_modules/node/node_modules/node-linux-*)
export npm_config_nodedir="${headers[0]}"

# These are the steps of the installation script of code-server, which does not say which step fails.
npm install --prefix "$FOLDER/code-server" "${quiet[@]}" --ignore-scripts "code-server@$CODE_SERVER"
vscode="$FOLDER/code-server/node_modules/code-server/lib/vscode"
npm install --prefix "$vscode" "${quiet[@]}" --omit=dev
npm install --prefix "$vscode/extensions" "${quiet[@]}" --omit=dev
ln -sfn code-linux.sh "$vscode/bin/remote-cli/code-server"
ln -sfn browser-linux.sh "$vscode/bin/helpers/browser.sh"

# code-server lets every extension use proposed APIs (`isProposedApiEnabled` returns true). VS Code does not: restore its check, so that
# a test fails if the extension uses a proposed API.
name='[A-Za-z0-9_$]+'
check="(function $name\\(($name),($name)\\)\\{return)!0(\\}function $name\\(\\2,\\3\\)\\{if\\(!$name\\(\\2,\\3\\)\\)throw new Error\\(.Extension)"
for script in workbench/api/node/extensionHostProcess.js code/browser/workbench/workbench.js; do
  sed -E -i "s/$check/\\1!!\\2.enabledApiProposals?.includes(\\3)\\4/" "$vscode/out/vs/$script"
  grep -q 'return!![A-Za-z0-9_$]*\.enabledApiProposals?\.includes(' "$vscode/out/vs/$script" || {
    echo "the API proposal check of code-server $CODE_SERVER was not found in $script: adapt $0" >&2
    exit 1
  }
done

npm install --prefix "$FOLDER/driver" "${quiet[@]}" "playwright-core@$PLAYWRIGHT"
echo "$versions" >"$FOLDER/installed"
