# PostgreSQL from Debian's packages, for change capture: a database `shop`, user and password drover.
ARG PYTHON_IMAGE=python:3.11.14-slim-bookworm
FROM ${PYTHON_IMAGE}
RUN apt-get update \
 && apt-get install --yes --no-install-recommends postgresql \
 && rm -rf /var/lib/apt/lists/* && ln -s /usr/lib/postgresql/* /usr/lib/postgresql/now
USER postgres
ENV PATH=/usr/lib/postgresql/now/bin:$PATH PGDATA=/var/lib/postgresql/shop PGUSER=drover PGDATABASE=shop
RUN echo drover > /tmp/password \
 && initdb --username=drover --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 \
 && echo "host all all all scram-sha-256\nhost replication all all scram-sha-256" >> $PGDATA/pg_hba.conf \
 && echo "wal_level = logical\nlisten_addresses = '*'" >> $PGDATA/postgresql.conf \
 && pg_ctl start --wait && createdb shop && pg_ctl stop --wait
CMD ["postgres"]
