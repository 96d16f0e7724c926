# A worker: the herder and its Spark engine.
#   docker build -f deploy/worker.Dockerfile .
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
# up to here as in service.Dockerfile, so that all images share these layers
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/* \
 && python -m drover.cli.java_check
COPY services/__init__.py services/__init__.py
COPY services/worker services/worker
USER drover
VOLUME /var/drover
ENV PYTHONUNBUFFERED=1
CMD ["python", "-m", "services.worker"]
