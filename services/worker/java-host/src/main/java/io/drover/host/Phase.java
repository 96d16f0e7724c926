package io.drover.host;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.Callable;

/** What a plugin is doing, for errors and status. */
final class Phase {
    /** The converters, transforms and predicates of a task, which Kafka Connect's loop calls. */
    static final String STEPS = "steps";
    private volatile String name = "";
    /** A method of the plugin and what it threw. */
    private record Failed(String name, Throwable error) {}

    private static final int FAILED_MAX = 8;
    /** The last errors: a task may stop, and stop() fail too, before its failure is reported. */
    private final Deque<Failed> failed = new ArrayDeque<>();
    private volatile Thread thread;
    private volatile long sinceNanos;

    <T> T in(String what, Callable<T> call) throws Exception {
        thread = Thread.currentThread();
        sinceNanos = System.nanoTime();
        name = what; // last: another thread may ask for how long it has run
        try {
            return call.call();
        } catch (Exception | Error error) {
            synchronized (failed) {
                failed.addFirst(new Failed(what, error));
                if (failed.size() > FAILED_MAX) {
                    failed.removeLast();
                }
            }
            throw error;
        } finally {
            name = "";
        }
    }

    /** From now on the loop converts or transforms a record, until the next call. */
    void inSteps() {
        thread = Thread.currentThread();
        sinceNanos = System.nanoTime();
        name = STEPS;
    }

    /** From now on no code of a plugin runs, until the next call. */
    void idle() {
        name = "";
    }

    /** The plugin's method that runs, or STEPS; empty between calls. */
    String name() {
        return name;
    }

    /** The plugin's method that threw an error or its cause; empty if none did. */
    String failed(Throwable error) {
        synchronized (failed) {
            for (Throwable each : Failures.causes(error)) {
                for (Failed one : failed) {
                    if (one.error() == each) {
                        return one.name();
                    }
                }
            }
        }
        return "";
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
