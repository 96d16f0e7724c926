# One of the three services that need no Java:
#   docker build -f deploy/service.Dockerfile --build-arg SERVICE=coordinator .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE} AS build
ARG PIP_INDEX_URL
WORKDIR /src
RUN pip install --no-cache-dir grpcio-tools==1.85.1 mypy-protobuf
COPY pyproject.toml README.md ./
COPY protos protos
COPY shared shared
RUN python protos/generate.py && pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM ${PYTHON_IMAGE}
ARG PIP_INDEX_URL
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl \
 && useradd --uid 1000 --create-home drover && install -d -o drover /var/drover /files
WORKDIR /app
# up to here as in worker.Dockerfile, so that all images share these layers
ARG SERVICE
RUN test -n "$SERVICE" || { echo "give --build-arg SERVICE=coordinator|config_store|status_store"; exit 1; }
# only its own code: a service that imported another one would fail at its start
COPY services/__init__.py services/__init__.py
COPY services/${SERVICE} services/${SERVICE}
USER drover
VOLUME /var/drover
ENV PYTHONUNBUFFERED=1 DROVER_SERVICE=${SERVICE}
CMD ["sh", "-c", "exec python -m services.$DROVER_SERVICE"]
