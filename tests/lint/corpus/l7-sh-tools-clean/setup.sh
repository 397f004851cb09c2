#!/bin/sh
set -eu
apt-get update
apt-get install -y --no-install-recommends python3-venv postgresql-client
python3 -m venv /opt/tools
/opt/tools/bin/pip install psycopg==3.2.3 alembic==1.14.0
docker run -d --name pg -e POSTGRES_PASSWORD=changeme -p 5432:5432 postgres:17
