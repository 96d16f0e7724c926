# Coordinator, config store, status store, gateway and the drover command; without Java and Spark.
#   docker build --file deploy/service.Dockerfile --tag drover-service .
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
RUN python needed.py requirements.lock httptools mcp uvicorn pyproject.toml > needed.txt \
 && pip --python /opt/drover/bin/python install --no-cache-dir --require-hashes --only-binary :all: --requirement needed.txt

FROM ${PYTHON_IMAGE}
RUN useradd --uid 1000 --create-home drover \
 && install -d -o drover /certs /gateway /clients && install -d -o drover -m 0700 /authority /var/drover
COPY --from=needed /opt/drover /opt/drover
COPY --from=build /wheels /wheels
RUN pip --python /opt/drover/bin/python install --no-cache-dir --no-index --no-deps /wheels/drover_connect-*.whl \
    /wheels/drover_coordinator-*.whl /wheels/drover_config_store-*.whl /wheels/drover_status_store-*.whl \
    /wheels/drover_gateway-*.whl
WORKDIR /app
USER drover
ENV PATH=/opt/drover/bin:$PATH PYTHONUNBUFFERED=1 PYTHONSAFEPATH=1
# the module to run: drover_coordinator, drover_config_store, drover_status_store or drover_gateway
CMD ["sh", "-c", "exec python -m \"${DROVER_SERVICE:?is to name the module of a service}\""]
