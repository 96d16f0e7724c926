package io.drover.host;

import java.io.PrintWriter;
import java.io.StringWriter;

/** Errors as texts. */
final class Failures {
    private static final int TRACE_MAX = 20_000;

    private Failures() {}

    static String trace(Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        String found = text.toString();
        return found.length() <= TRACE_MAX ? found : found.substring(0, TRACE_MAX) + "…";
    }

    /** The messages of an error and its causes, without repetition. */
    static String message(Throwable error) {
        StringBuilder text = new StringBuilder();
        int depth = 0;
        for (Throwable each = error; each != null && depth < 8; each = each.getCause(), depth++) {
            String message = each.getMessage();
            String name = each.getClass().getSimpleName();
            String part = message == null ? name : name + ": " + message;
            if (text.indexOf(part) < 0 && (message == null || text.indexOf(message) < 0)) {
                text.append(text.isEmpty() ? "" : "; caused by ").append(part);
            }
        }
        return text.toString();
    }
}
