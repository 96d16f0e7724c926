# A worker: the herder and its Spark engine, with Java and Spark's jars.
#   docker build --file deploy/worker.Dockerfile --tag drover-worker .
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
FROM ${PYTHON_IMAGE} AS build
ARG PIP_INDEX_URL
WORKDIR /src
COPY requirements.lock deploy/needed.py LICENSE ./
RUN python needed.py requirements.lock build grpcio-tools hatchling mypy-protobuf > needed.txt \
 && pip install --no-cache-dir --require-hashes --only-binary :all: --requirement needed.txt
COPY protos protos
COPY shared shared
COPY services services
RUN python protos/generate.py \
 && for each in shared services/*; do python -m build --wheel --no-isolation --outdir /wheels "$each" || exit 1; done
# the stage above is identical in service.Dockerfile and worker.Dockerfile, so the images share its wheels

# dependencies get their own layer, because they change less often than the wheels
FROM ${PYTHON_IMAGE} AS needed
ARG PIP_INDEX_URL
WORKDIR /src
RUN python -m venv --without-pip /opt/drover
COPY requirements.lock deploy/needed.py shared/pyproject.toml ./
# pyspark has no wheel: setuptools, with its digest, builds one
RUN python needed.py requirements.lock setuptools > tools.txt \
 && python needed.py requirements.lock 'pyproject.toml[spark,jdbc,postgres,lakehouse,objects,http,avro,protobuf,sql]' > needed.txt \
 && for each in tools needed; do pip --python /opt/drover/bin/python install --no-cache-dir --require-hashes \
    --no-build-isolation --requirement "$each.txt" || exit 1; done

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
# the directories in which connectors may read and write files
ENV PATH=/opt/drover/bin:$PATH PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1 DROVER_FILE_ROOTS=/files
# engines start in half of the CPU time with this archive of the classes that Spark's JVM loads; root
# writes it, so that a container under any user id takes it
RUN echo '{"spark.master": "local[*]"}' \
 | python -m drover_worker.engine.class_archive /opt/drover/share/drover/spark-classes \
 && chmod -R a+rX /opt/drover/share/drover
USER drover
CMD ["python", "-m", "drover_worker"]
