package org.apache.kafka.common.utils;

/**
 * The version of Kafka, where plugins that were built for Kafka 4.3 and older look for it; Kafka 4.4
 * moved the class.
 */
public final class AppInfoParser {
    private AppInfoParser() {}

    public static String getVersion() {
        return org.apache.kafka.common.utils.internals.AppInfoParser.getVersion();
    }

    public static String getCommitId() {
        return org.apache.kafka.common.utils.internals.AppInfoParser.getCommitId();
    }
}
