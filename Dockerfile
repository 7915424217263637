# The images of Countersign, one target a process: gateway, sidecar, and for the demo an engine and a sidecar with the simulators.
#   docker build --target gateway -t countersign-gateway .
# NODE_IMAGE may be any image of Debian or Ubuntu with Node 24. Behind a private mirror or a private CA, hand the build its own
# npmrc, pip.conf and CA bundle as secrets: --secret id=npmrc,src=… --secret id=pip,src=… --secret id=ca,src=… (none is kept).
# Its version is the one that the tests run on (package.json, `node`): test/deploy/pins.test.ts compares them.
ARG NODE_IMAGE=node:24.21.0-bookworm-slim@sha256:d6aa754f16b3197301076f047b5def2f02ea1dbbc2ca920407d46d7ec7f87b20

FROM ${NODE_IMAGE} AS build
WORKDIR /app
ENV npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false
COPY package.json package-lock.json ./

# What the processes import: the lockfile's versions, no install script run, koffi for this platform alone.
FROM build AS modules
RUN --mount=type=secret,id=npmrc,target=/root/.npmrc --mount=type=secret,id=ca \
    npm ci --omit=dev --ignore-scripts --no-bin-links

# Only the sidecar calls into the driver.
FROM modules AS gateway-modules
RUN rm -rf node_modules/koffi node_modules/@koromix

# The web page.
FROM build AS page
COPY . .
RUN --mount=type=secret,id=npmrc,target=/root/.npmrc --mount=type=secret,id=ca \
    npm ci --ignore-scripts && npm rebuild esbuild && node scripts/build-page.ts

# Node alone: no package manager. Numbers, because an orchestrator checks them: group 10000, sidecar 10001, gateway 10002, engine 10003.
FROM ${NODE_IMAGE} AS runtime
RUN rm -rf /usr/local/lib/node_modules /usr/local/bin/npm /usr/local/bin/npx /usr/local/bin/corepack \
      /usr/local/bin/yarn /usr/local/bin/yarnpkg /opt/yarn-* \
    && groupadd --gid 10000 countersign \
    && useradd --uid 10001 --gid 10000 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin sidecar \
    && useradd --uid 10002 --gid 10000 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin gateway \
    && useradd --uid 10003 --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin engine \
    && install -d -m 2750 -o sidecar -g countersign /run/countersign
WORKDIR /app
# What Node makes of the sources, made once: a start takes half the time. Each image fills it as its own user, because Node looks by user.
ENV NODE_ENV=production NODE_COMPILE_CACHE=/app/.compiled
STOPSIGNAL SIGTERM
ARG VERSION=0.2.0
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$REVISION \
      org.opencontainers.image.created=$CREATED \
      org.opencontainers.image.licenses=Apache-2.0
COPY LICENSE package.json ./
COPY proto proto
COPY node node
COPY verify verify

FROM runtime AS gateway-sources
LABEL org.opencontainers.image.title="Countersign gateway" \
      org.opencontainers.image.description="An OpenAI-compatible gateway whose answers carry a GPU's signature"
COPY --from=gateway-modules /app/node_modules node_modules
COPY --from=page /app/build build
COPY sealed sealed
COPY gateway gateway

FROM gateway-sources AS gateway-compiled
USER 10002
# With the flags it will run with: V8 takes no code that was compiled under others.
RUN export NODE_COMPILE_CACHE=/tmp/compiled; \
    node --max-old-space-size=320 --max-semi-space-size=16 --disable-warning=ExperimentalWarning gateway/main.ts; \
    node gateway/healthcheck.ts; \
    chmod -R a+rX,go-w /tmp/compiled/*

FROM gateway-sources AS gateway
COPY --chown=0:0 --from=gateway-compiled /tmp/compiled .compiled
# A volume that is mounted here for AUDIT_LOG begins with the owner of this folder.
RUN install -d -m 0700 -o gateway -g countersign /var/log/countersign
ENV HOST=0.0.0.0 PORT=8080 SIDECAR_SOCKET=/run/countersign/sidecar.sock SIDECAR_UID=10001
EXPOSE 8080
USER 10002:10000
HEALTHCHECK --interval=10s --timeout=10s --start-period=20s --retries=3 CMD ["node", "gateway/healthcheck.ts"]
# gateway/base/config.ts says what they are for.
CMD ["node", "--max-old-space-size=320", "--max-semi-space-size=16", "--disable-warning=ExperimentalWarning", "gateway/main.ts"]

# NVIDIA's Python SDK, from hashed requirements, compiled once because nobody may write beside it later.
FROM ${NODE_IMAGE} AS venv
RUN apt-get update && apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
COPY sidecar/attesters/nvtrust/python /nvtrust
RUN --mount=type=secret,id=pip,target=/etc/pip.conf --mount=type=secret,id=ca \
    sh /nvtrust/install.sh /opt/nvtrust \
    && /opt/nvtrust/bin/python -m pip uninstall --quiet --yes pip setuptools \
    && /opt/nvtrust/bin/python -m compileall -q /opt/nvtrust/lib

FROM runtime AS sidecar-sources
LABEL org.opencontainers.image.title="Countersign sidecar" \
      org.opencontainers.image.description="The process beside the GPU: has it sign what the gateway asks and answers"
# With a package in deploy/nvattest, the image holds NVIDIA's nvattest too: see the README there.
RUN --mount=type=bind,source=deploy/nvattest,target=/nvattest \
    apt-get update && apt-get install -y --no-install-recommends python3-minimal libpython3-stdlib ca-certificates \
    && if ls /nvattest/*.deb >/dev/null 2>&1; then \
         (cd /nvattest && sha256sum --strict --check SHA256SUMS && apt-get install -y --no-install-recommends ./*.deb) \
         && nvattest version | grep -E '"nvattest" *: *"([2-9]|[1-9][0-9])\.' \
         || { echo "nvattest: what is in deploy/nvattest is not in SHA256SUMS, cannot be installed, or is older than 2" >&2; exit 1; }; \
       else echo "nvattest is absent: this image attests no driver of CUDA 13.5 or later with NVIDIA's own verifier"; fi \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/* \
    && install -d -m 0700 -o sidecar -g countersign /var/lib/countersign
COPY --from=venv /opt/nvtrust /opt/nvtrust
COPY --from=modules /app/node_modules node_modules
COPY sidecar sidecar
# What sets the GPUs ready, in a container of its own.
COPY deploy/ready deploy/ready

FROM sidecar-sources AS sidecar-compiled
USER 10001
RUN export NODE_COMPILE_CACHE=/tmp/compiled; ATTESTER=none node --max-semi-space-size=4 sidecar/main.ts; node sidecar/healthcheck.ts; \
    chmod -R a+rX,go-w /tmp/compiled/*

FROM sidecar-sources AS sidecar
COPY --chown=0:0 --from=sidecar-compiled /tmp/compiled .compiled
ENV SIDECAR_SOCKET=/run/countersign/sidecar.sock \
    NVTRUST_VENV=/opt/nvtrust \
    COLLATERAL_DIR=/var/lib/countersign/collateral
USER 10001:10000
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 CMD ["node", "sidecar/healthcheck.ts"]
CMD ["node", "--max-semi-space-size=4", "sidecar/main.ts"]

# The same with the simulators, which no image for production holds.
FROM sidecar AS demo-sidecar
LABEL org.opencontainers.image.title="Countersign demo sidecar" \
      org.opencontainers.image.description="The sidecar with a simulated GPU and processor, for the demo"
COPY demo/twin demo/twin
ENV ATTESTER=simulated
CMD ["node", "--max-semi-space-size=4", "demo/twin/main.ts", "--root-dir", "/var/lib/countersign/simulated-root"]

FROM runtime AS demo-engine-sources
LABEL org.opencontainers.image.title="Countersign demo engine" \
      org.opencontainers.image.description="A tiny real language model with seeded random weights, for the demo"
COPY --from=gateway-modules /app/node_modules node_modules
COPY demo/engine demo/engine

FROM demo-engine-sources AS demo-engine-compiled
USER 10003
RUN export NODE_COMPILE_CACHE=/tmp/compiled; PORT=none node demo/engine/main.ts; node demo/engine/healthcheck.ts; \
    chmod -R a+rX,go-w /tmp/compiled/*

FROM demo-engine-sources AS demo-engine
COPY --chown=0:0 --from=demo-engine-compiled /tmp/compiled .compiled
ENV HOST=0.0.0.0 PORT=8000
EXPOSE 8000
USER 10003
HEALTHCHECK --interval=5s --timeout=10s --start-period=20s --retries=3 CMD ["node", "demo/engine/healthcheck.ts"]
CMD ["node", "demo/engine/main.ts"]
