# A worker: the herder and its Spark engine, with Java and Spark's jars.
#   docker build --file deploy/worker.Dockerfile --tag drover-worker .
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
 && for each in shared services/*; do python -m build --wheel --outdir /wheels "$each" || exit 1; done
# the stage above is identical in service.Dockerfile and worker.Dockerfile, so the images share its wheels

# dependencies get their own layer, because they change less often than the wheels
FROM ${PYTHON_IMAGE} AS needed
ARG PIP_INDEX_URL
WORKDIR /src
RUN python -m venv --without-pip /opt/drover
COPY constraints.txt deploy/needed.py shared/pyproject.toml ./
RUN python needed.py pyproject.toml spark jdbc postgres lakehouse objects http avro protobuf sql > needed.txt \
 && pip --python /opt/drover/bin/python install --no-cache-dir --constraint constraints.txt --requirement needed.txt

FROM ${PYTHON_IMAGE}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
RUN useradd --uid 1000 --create-home drover \
 && install -d -o drover /certs /files && install -d -o drover -m 0700 /var/drover
COPY --from=needed /opt/drover /opt/drover
COPY --from=build /wheels /wheels
RUN pip --python /opt/drover/bin/python install --no-cache-dir --no-index --no-deps /wheels/drover_connect-*.whl \
    /wheels/drover_worker-*.whl \
 && /opt/drover/bin/python -m drover.local.java_check
WORKDIR /app
USER drover
# the directories in which connectors may read and write files
ENV PATH=/opt/drover/bin:$PATH PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 DROVER_FILE_ROOTS=/files
CMD ["python", "-m", "drover_worker"]
