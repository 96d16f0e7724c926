package io.drover.host;

import com.fasterxml.jackson.core.StreamReadConstraints;
import java.io.InputStream;
import java.nio.file.Path;

/** The host's command line: the first argument names what this JVM does. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        // records are limited by the heap, not by Jackson's default of 20 million characters
        StreamReadConstraints.overrideDefaultStreamReadConstraints(
            StreamReadConstraints.builder().maxStringLength(Integer.MAX_VALUE).build());
        String subcommand = arguments.length == 0 ? "" : arguments[0];
        switch (subcommand) {
            case "serve" -> {
                endWithParent();
                Server.serve(Path.of(arguments[1]), arguments[2]);
            }
            case "describe" -> {
                endWith(Long.parseLong(arguments[1]));
                Describe.run();
            }
            default -> {
                System.err.println("unknown subcommand '" + subcommand + "'");
                System.exit(2);
            }
        }
    }

    /** Ends this process when its caller ends, whatever a plugin does at that time. */
    private static void endWith(long caller) {
        ProcessHandle.of(caller).ifPresentOrElse(
            each -> each.onExit().thenRun(() -> Runtime.getRuntime().halt(0)),
            () -> Runtime.getRuntime().halt(0));
    }

    /** Ends this process when its standard input is closed, as it is when the engine has ended. */
    private static void endWithParent() {
        InputStream input = System.in;
        System.setIn(InputStream.nullInputStream());
        Thread watcher = new Thread(() -> {
            try {
                while (input.read() >= 0) {}
            } catch (java.io.IOException closed) {
                // as the end of the stream
            }
            Runtime.getRuntime().halt(0);
        }, "parent");
        watcher.setDaemon(true);
        watcher.start();
    }
}
