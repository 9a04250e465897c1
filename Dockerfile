# The gateway with the embedded model. Build: docker build -t antiphon .
# The root file system can be read-only; /data is the only folder that is written.
ARG BASE=python:3.13-slim-bookworm

FROM ${BASE} AS build
WORKDIR /src
COPY requirements.txt requirements-local.txt ./
RUN python3 -m venv /opt/antiphon \
    && /opt/antiphon/bin/pip install --no-cache-dir --require-hashes -r requirements.txt \
    && /opt/antiphon/bin/pip install --no-cache-dir --no-deps --require-hashes -r requirements-local.txt
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN /opt/antiphon/bin/pip install --no-cache-dir --no-deps .

FROM ${BASE}
# The embedded model needs OpenMP, which slim images lack.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --no-install-recommends -y libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home --home-dir /data --shell /usr/sbin/nologin antiphon
COPY --from=build /opt/antiphon /opt/antiphon
ENV PATH=/opt/antiphon/bin:$PATH \
    HOME=/data \
    XDG_DATA_HOME=/data \
    PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=15s --timeout=5s --start-period=30s \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8080/livez', timeout=4)"]
ENTRYPOINT ["antiphon"]
CMD ["serve", "--config", "/etc/antiphon/antiphon.toml"]
