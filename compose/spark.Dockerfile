# The image of the profile `spark`: Spark, a Java, and Ottla, for a master, a worker and the driver of a pipeline.
# Built from the root of the repository: docker build -f compose/spark.Dockerfile .

ARG PYTHON_IMAGE=python:3.11-slim

# ── Building: what is needed only here stays here ─────────────────────────────────────────────
FROM ${PYTHON_IMAGE} AS build

# pip reads these by itself. Docker knows the proxies' own (HTTP_PROXY, HTTPS_PROXY, NO_PROXY).
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore

COPY locks/build.lock locks/spark.lock /src/locks/
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --quiet --require-hashes -r /src/locks/build.lock \
 && python -m venv --without-pip /opt/ottla \
 && /opt/build/bin/pip --python /opt/ottla/bin/python install --quiet --require-hashes -r /src/locks/spark.lock

COPY pyproject.toml README.md LICENSE pyspark_ottla.py /src/
COPY ottla /src/ottla
COPY proto /src/proto
COPY controller /src/controller
COPY replication /src/replication
COPY node /src/node
COPY clients /src/clients
COPY chaos /src/chaos
# Spark's launcher wants a JAVA_HOME: the packaged Java behind its script (clients/spark/java.py).
RUN /opt/build/bin/pip wheel --quiet --no-deps --no-build-isolation -w /src/wheels /src \
 && /opt/build/bin/pip --python /opt/ottla/bin/python install --quiet --no-deps --no-index /src/wheels/*.whl \
 && /opt/ottla/bin/python -c "from pathlib import Path; from ottla.clients.spark.java import packaged_home, write_script; write_script(packaged_home(), Path('/opt/ottla/java'))" \
 && ln -s "$(/opt/ottla/bin/python -c 'import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent)')" /opt/ottla/spark

# ── The image ─────────────────────────────────────────────────────────────────────────────────
FROM ${PYTHON_IMAGE}

RUN echo 'ottla:x:10001:10001::/nonexistent:/usr/sbin/nologin' >> /etc/passwd \
 && echo 'ottla:x:10001:' >> /etc/group \
 && install -d -o 10001 -g 10001 -m 0750 /var/lib/spark

COPY --from=build /opt/ottla /opt/ottla

ENV PATH=/opt/ottla/bin:/opt/ottla/spark/bin:$PATH \
    JAVA_HOME=/opt/ottla/java \
    SPARK_HOME=/opt/ottla/spark \
    PYSPARK_PYTHON=/opt/ottla/bin/python \
    PYTHONDONTWRITEBYTECODE=1

USER 10001:10001
WORKDIR /var/lib/spark
EXPOSE 7077 8080
