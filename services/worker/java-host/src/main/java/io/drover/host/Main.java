package io.drover.host;

/** The host's command line: the first argument names what this JVM does. */
public final class Main {
    private Main() {}

    public static void main(String[] arguments) throws Exception {
        String subcommand = arguments.length == 0 ? "" : arguments[0];
        switch (subcommand) {
            case "describe" -> Describe.run();
            default -> {
                System.err.println("unknown subcommand '" + subcommand + "'");
                System.exit(2);
            }
        }
    }
}
