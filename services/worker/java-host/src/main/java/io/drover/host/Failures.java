package io.drover.host;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.util.ArrayList;
import java.util.List;

/** Errors as texts. */
final class Failures {
    private static final int TRACE_MAX = 20_000;
    private static final int CAUSES_MAX = 16;

    private Failures() {}

    static String trace(Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        String found = text.toString();
        return found.length() <= TRACE_MAX ? found : found.substring(0, TRACE_MAX) + "…";
    }

    /** An error and its causes, the first ones if it has many: some causes are causes of their own. */
    static List<Throwable> causes(Throwable error) {
        List<Throwable> found = new ArrayList<>();
        for (Throwable each = error; each != null && found.size() < CAUSES_MAX; each = each.getCause()) {
            found.add(each);
        }
        return found;
    }

    /** The messages of an error and its causes, without repetition. */
    static String message(Throwable error) {
        StringBuilder text = new StringBuilder();
        for (Throwable each : causes(error)) {
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
