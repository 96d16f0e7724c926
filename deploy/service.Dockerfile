# One of the three services that need neither Java nor Spark:
#   docker build -f deploy/service.Dockerfile --build-arg SERVICE=coordinator .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm
FROM ${PYTHON_IMAGE} AS build
ARG PIP_INDEX_URL
WORKDIR /src
COPY constraints.txt LICENSE ./
RUN pip install --no-cache-dir --constraint constraints.txt build grpcio-tools mypy-protobuf
COPY protos protos
COPY shared shared
COPY services services
RUN python protos/generate.py \
 && for each in shared services/*; do python -m build --wheel --outdir /wheels "$each" || exit 1; done \
 && cp constraints.txt /wheels
# up to here alike in service.Dockerfile and worker.Dockerfile, so that all images are of the same wheels

FROM ${PYTHON_IMAGE}
ARG PIP_INDEX_URL
ARG SERVICE
RUN test -n "$SERVICE" || { echo "give --build-arg SERVICE=coordinator|config_store|status_store"; exit 1; }
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --constraint /wheels/constraints.txt \
    /wheels/drover_connect-*.whl /wheels/drover_${SERVICE}-*.whl \
 && useradd --uid 1000 --create-home drover && install -d -o drover /var/drover /files
WORKDIR /app
USER drover
VOLUME /var/drover
ENV PYTHONUNBUFFERED=1 DROVER_SERVICE=${SERVICE}
CMD ["sh", "-c", "exec python -m drover_$DROVER_SERVICE"]
