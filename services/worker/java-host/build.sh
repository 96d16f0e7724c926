#!/bin/sh
# Builds the host of Java plugins into drover_worker/java_host. Without Maven or a JDK, or when Maven
# fails, it prints one line and ends with 0: only connectors that name a Java class need the host.
cd "$(dirname "$0")" || exit 1
output=../drover_worker/java_host
without="connectors that name a class of a Java plugin will not run"

for each in mvn javac; do
  if ! command -v "$each" >/dev/null 2>&1; then
    echo "no $each in PATH: the host of Java plugins is not built, $without"
    exit 0
  fi
done
if ! log=$(mvn -q -B -Dstyle.color=never clean package 2>&1); then
  echo "the host of Java plugins is not built, $without: $(printf '%s\n' "$log" | grep -m 1 ERROR)"
  exit 0
fi
# complete before its name is used: tests and workers may start meanwhile
rm -rf "$output.new" && mkdir -p "$output.new" || exit 1
cp target/drover-java-host.jar target/jars/*.jar "$output.new" || exit 1
touch "$output.new/.built"
rm -rf "$output" && mv "$output.new" "$output"
