package io.drover.host;

import java.util.concurrent.Callable;

/** What a plugin is doing, for errors and status. */
final class Phase {
    private volatile String name = "";
    private volatile String failed = "";
    private volatile Thread thread;
    private volatile long sinceNanos;

    <T> T in(String what, Callable<T> call) throws Exception {
        name = what;
        thread = Thread.currentThread();
        sinceNanos = System.nanoTime();
        try {
            return call.call();
        } catch (Exception | Error error) {
            failed = what;
            throw error;
        } finally {
            name = "";
        }
    }

    /** The plugin's method that runs; empty between calls. */
    String name() {
        return name;
    }

    /** The plugin's method that failed last; empty if none did. */
    String failed() {
        return failed;
    }

    long sinceMs() {
        return name.isEmpty() ? 0 : (System.nanoTime() - sinceNanos) / 1_000_000;
    }

    /** Where the plugin's thread is now. */
    String stack() {
        Thread running = thread;
        StringBuilder text = new StringBuilder();
        if (running != null && !name.isEmpty()) {
            for (StackTraceElement each : running.getStackTrace()) {
                text.append("\tat ").append(each).append('\n');
            }
        }
        return text.toString();
    }
}
