package io.drover.host;

/** A task of a plugin ended with an error. */
final class TaskFailedException extends Exception {
    private static final long serialVersionUID = 1L;
    /** The plugin's method that failed; empty if it was Kafka Connect's own code. */
    final String phase;

    TaskFailedException(String phase, Throwable cause) {
        super(Failures.message(cause), cause);
        this.phase = phase;
    }
}
