# The hatcast command. Built in two steps, so that the image has no build tools in it.
# Pinned by version; where images have to be the same bytes for ever, pin them by digest too (image@sha256:...).
FROM python:3.12.12-slim-bookworm AS build
RUN pip install --no-cache-dir --disable-pip-version-check uv==0.13.9
ENV UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /app
COPY pyproject.toml uv.lock ./
RUN uv sync --frozen --no-dev --no-install-project
COPY README.md LICENSE ./
COPY schemas schemas
COPY stream stream
COPY agents agents
COPY hatcast hatcast
RUN uv sync --frozen --no-dev --no-editable

FROM python:3.12.12-slim-bookworm
RUN useradd --system --uid 10001 --user-group --create-home hatcast
COPY --from=build /app/.venv /app/.venv
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
