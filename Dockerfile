# The hatcast command. Built in two steps, so that the image has no build tools in it.
# Everything that is installed is in uv.lock or ops/uv.txt, with hashes. The base image is pinned by version, and by digest with
#   docker build --build-arg PYTHON=python:3.12.12-slim-bookworm@sha256:... .
# where `docker buildx imagetools inspect python:3.12.12-slim-bookworm` prints the digest: SECURITY.md.
ARG PYTHON=python:3.12.12-slim-bookworm
FROM ${PYTHON} AS build
COPY ops/uv.txt /tmp/uv.txt
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes --only-binary :all: --requirement /tmp/uv.txt
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
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
COPY hatcast hatcast
# By hand, since uv would fetch hatchling without a lock.
RUN UV_PROJECT_ENVIRONMENT=/build uv sync --frozen --only-group build --no-install-project \
    && /build/bin/python -m hatchling build --target wheel --directory /wheel \
    && uv pip install --python .venv --no-deps --no-index /wheel/*.whl
# What scripts/sbom writes and checks.
RUN set --; for extra in ${EXTRAS}; do set -- "$@" --extra "${extra}"; done; \
    uv export --frozen --no-dev --quiet --preview-features sbom-export --format cyclonedx1.5 --output-file sbom.cdx.json "$@"
# Tests of libraries, 16 MB of them NumPy's. A draw shows that nothing else is missing.
RUN find .venv -type d -name tests -prune -exec rm -rf {} + \
    && .venv/bin/python -c "from hatcast.stream.mechanisms.system import SystemNoise as N; N().laplace(1, 1, 1.0)"

FROM ${PYTHON}
RUN useradd --system --uid 10001 --user-group --create-home hatcast
COPY --from=build /app/.venv /app/.venv
COPY --from=build /app/sbom.cdx.json /app/sbom.cdx.json
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
