package io.drover.host;

import java.util.concurrent.Callable;

/** What a plugin is doing, for errors and status. */
final class Phase {
    private volatile String name = "";
    private volatile Thread thread;
    private volatile long sinceNanos;

    <T> T in(String what, Callable<T> call) throws Exception {
        name = what;
        thread = Thread.currentThread();
        sinceNanos = System.nanoTime();
        T found = call.call();
        name = ""; // after an exception it stays, and names where the plugin failed
        return found;
    }

    /** The plugin's method that runs or failed; empty between calls. */
    String name() {
        return name;
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
