# A worker: the herder and its Spark engine.
#   docker build -f deploy/worker.Dockerfile .
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN pip install --no-cache-dir grpcio-tools==1.85.1 mypy-protobuf
COPY pyproject.toml README.md ./
COPY protos protos
COPY shared shared
RUN python protos/generate.py && pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm
RUN apt-get update \
 && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels \
 && python -m drover.cli.java_check \
 && useradd --system --uid 1000 --create-home drover && install -d -o drover /var/drover /app
WORKDIR /app
COPY services/__init__.py services/__init__.py
COPY services/worker services/worker
USER drover
VOLUME /var/drover
ENV PYTHONUNBUFFERED=1
CMD ["python", "-m", "services.worker"]
