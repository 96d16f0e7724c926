# A worker: the herder and its Spark engine.
#   docker build -f deploy/worker.Dockerfile .
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
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --constraint /wheels/constraints.txt \
    "$(echo /wheels/drover_connect-*.whl)[jdbc,postgres,lakehouse,objects,http,avro,sql]" /wheels/drover_worker-*.whl \
 && python -m drover.cli.java_check \
 && useradd --uid 1000 --create-home drover && install -d -o drover /var/drover /files
WORKDIR /app
USER drover
VOLUME /var/drover
# below which directories connectors may read and write files
ENV PYTHONUNBUFFERED=1 DROVER_FILE_ROOTS=/files
CMD ["python", "-m", "drover_worker"]
