# One of the three services that need no Java:
#   docker build -f deploy/service.Dockerfile --build-arg SERVICE=coordinator .
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
RUN pip install --no-cache-dir grpcio-tools==1.85.1 mypy-protobuf
COPY pyproject.toml README.md ./
COPY protos protos
COPY shared shared
RUN python protos/generate.py && pip wheel --no-cache-dir --no-deps --wheel-dir /wheels .

FROM python:3.11-slim-bookworm
ARG SERVICE
RUN test -n "$SERVICE" || { echo "give --build-arg SERVICE=coordinator|config_store|status_store"; exit 1; }
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir /wheels/*.whl && rm -r /wheels \
 && useradd --system --uid 1000 drover && install -d -o drover /var/drover
WORKDIR /app
# only its own code: a service that imported another one would fail at its start
COPY services/__init__.py services/__init__.py
COPY services/${SERVICE} services/${SERVICE}
USER drover
VOLUME /var/drover
ENV PYTHONUNBUFFERED=1 DROVER_SERVICE=${SERVICE}
CMD ["sh", "-c", "exec python -m services.$DROVER_SERVICE"]
