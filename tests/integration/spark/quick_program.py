"""What `test_packaged_java.py` runs where there is no Java: Spark reads a topic, and writes one.

python -m tests.integration.spark.quick_program BOOTSTRAP SOURCE TARGET DIR
"""

from __future__ import annotations

import os
import sys

from ottla.clients.spark.session import start_session


def main(bootstrap: str, source: str, target: str, folder: str) -> None:
    spark = start_session("quick", url="local[2]", conf={"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("ERROR")
    address = {"kafka.bootstrap.servers": bootstrap}
    stream = spark.readStream.format("ottla").options(**address, subscribe=source)
    rows = stream.option("startingOffsets", "earliest").load().selectExpr("key", "value")
    writer = rows.writeStream.format("ottla").options(**address, topic=target)
    query = (
        writer.option("checkpointLocation", f"{folder}/state").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    count = spark.read.format("ottla").options(**address, subscribe=target).load().count()
    version = spark._jvm.java.lang.System.getProperty("java.version")
    print(f"counted {count} on Java {version} of {os.environ['JAVA_HOME']}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
