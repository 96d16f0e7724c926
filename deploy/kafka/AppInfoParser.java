package org.apache.kafka.common.utils;

/** Where Kafka's connectors of 4.3 expect the class that 4.4 has moved. */
public class AppInfoParser {
    public static String getVersion() {
        return org.apache.kafka.common.utils.internals.AppInfoParser.getVersion();
    }
}
