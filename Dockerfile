# The hatcast command on Debian's own Python: without a shell, without a package manager. Built in two steps, so that the image
# has no build tools in it. All Python packages that are installed are in uv.lock or ops/uv.txt, with hashes.
# Both bases are of one Debian, and so have one Python. They are pinned by release, and by digest with
#   docker build --build-arg DEBIAN=debian:13.7-slim@sha256:... --build-arg PYTHON=gcr.io/distroless/python3-debian13:nonroot@sha256:... .
# where `docker buildx imagetools inspect NAME` prints the digest: SECURITY.md.
ARG DEBIAN=debian:13.7-slim
ARG PYTHON=gcr.io/distroless/python3-debian13:nonroot
FROM ${DEBIAN} AS build
# Signed by Debian, as the packages of both bases are. Nothing of these gets into the image.
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends binutils ca-certificates python3 python3-venv
COPY ops/uv.txt /tmp/uv.txt
RUN python3 -m venv /opt/uv
ENV PATH=/opt/uv/bin:$PATH
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: --requirement /tmp/uv.txt
# The environment links to the Python at this path, which the image has too.
# Without uv's notes of when it installed a package: two builds of one commit are equal, byte by byte.
ENV UV_PYTHON=/usr/bin/python3.13 UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_NO_INSTALLER_METADATA=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
COPY pyproject.toml uv.lock ./
# Extras, separated by spaces: docker build --build-arg EXTRAS="parquet" .
ARG EXTRAS=""
RUN set --; for extra in ${EXTRAS}; do set -- "$@" --extra "${extra}"; done; \
    uv sync --frozen --no-dev --no-install-project "$@"
COPY README.md LICENSE ./
COPY schemas schemas
COPY stream stream
COPY agents agents
COPY lab lab
COPY hatcast hatcast
# By hand, since uv would fetch hatchling without a lock.
RUN UV_PROJECT_ENVIRONMENT=/build uv sync --frozen --only-group build --no-install-project \
    && /build/bin/python -m hatchling build --target wheel --directory /wheel \
    && uv pip install --python .venv --no-deps --no-index /wheel/*.whl
# What scripts/sbom writes and checks, without its time and a random number.
RUN set --; for extra in ${EXTRAS}; do set -- "$@" --extra "${extra}"; done; \
    uv export --frozen --no-dev --quiet --preview-features sbom-export --format cyclonedx1.5 --output-file sbom.cdx.json "$@" \
    && sed -i '/^  "serialNumber": /d; /^    "timestamp": /d' sbom.cdx.json
# 48 MB of OpenDP's library are a table of symbols, which is never loaded. No other library: NumPy's OpenBLAS breaks.
# And tests of libraries, 16 MB of them NumPy's.
RUN strip --strip-unneeded .venv/lib/python3.*/site-packages/opendp/lib/*.so \
    && find .venv -type d -name tests -prune -exec rm -rf {} +
RUN useradd --system --uid 10001 --user-group --create-home hatcast

FROM ${PYTHON}
USER 0:0
COPY --from=build /etc/passwd /etc/group /etc/
COPY --from=build --chown=10001:10001 /home/hatcast /home/hatcast
COPY --from=build /app/.venv /app/.venv
COPY --from=build /app/sbom.cdx.json /app/sbom.cdx.json
COPY tools/bytecode.py /app/bytecode.py
# In the image itself and not in the step before, so that a Python or a library that does not fit ends the build. And a draw.
RUN ["/app/.venv/bin/python", "/app/bytecode.py"]
RUN ["/app/.venv/bin/python", "-c", "from hatcast.stream.mechanisms.system import SystemNoise as N; N().laplace(1, 1, 1.0)"]
# The root file system may be read-only: what libraries write for themselves goes to /tmp.
ENV PATH=/app/.venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 MPLCONFIGDIR=/tmp
USER 10001:10001
WORKDIR /home/hatcast
EXPOSE 9464
# Of what runs with --metrics-listen 0.0.0.0:9464. A command that ends by itself is over before it is asked.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9464/livez', timeout=4)"]
ENTRYPOINT ["hatcast"]
CMD ["--help"]
