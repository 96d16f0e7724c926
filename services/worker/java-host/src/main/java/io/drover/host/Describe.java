package io.drover.host;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.connect.components.Versioned;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.storage.HeaderConverter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * Answers what classes of one plugin declare, and validates a config with one of them.
 *
 * <p>Runs code of the plugin, so it has a JVM of its own, which its caller limits and ends. The
 * request is one JSON object on standard input: {@code token}, {@code path} (the plugin's folder or
 * jar), {@code classes} (names), and optionally {@code config}, which the first class validates. Each
 * answer is a line on standard output that starts with the token, because plugins may print there
 * too. Before each call of the plugin, a line names the phase: it tells where a plugin hangs or ends
 * the JVM.
 */
final class Describe {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String MASK = "[hidden]";
    private static final String FAILED_BEFORE = "Could not initialize class ";
    private static final int TEXT_MAX = 20_000;
    private static final int RECOMMENDED_MAX = 100;

    private final PrintStream answers;
    private final String token;
    private String phase = "";

    private Describe(PrintStream answers, String token) {
        this.answers = answers;
        this.token = token;
    }

    /** Answers the request on standard input, and ends the JVM: plugins may have started threads. */
    static void run() throws IOException {
        PrintStream answers =
                new PrintStream(new FileOutputStream(FileDescriptor.out), true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        JsonNode request = JSON.readTree(System.in);
        Describe describe = new Describe(answers, request.path("token").asText());
        String path = request.path("path").asText();
        ClassLoader loader = path.isEmpty() ? Describe.class.getClassLoader() : PluginSet.pluginLoader(Path.of(path));
        Thread.currentThread().setContextClassLoader(loader);
        for (JsonNode each : request.path("classes")) {
            describe.describe(loader, each.asText(), request);
        }
        answers.flush();
        Runtime.getRuntime().halt(0);
    }

    private void describe(ClassLoader loader, String name, JsonNode request) {
        JsonNode config = request.path("config");
        ObjectNode answer = JSON.createObjectNode().put("class", name);
        try {
            enter(name, "loading the class");
            Class<?> found = Class.forName(name, true, loader);
            enter(name, "the constructor");
            Object plugin = found.getDeclaredConstructor().newInstance();
            enter(name, "version()");
            answer.put("version", plugin instanceof Versioned versioned ? versioned.version() : null);
            enter(name, "config()");
            ConfigDef definition = definition(plugin);
            if (definition == null) {
                throw new IllegalStateException("config() returned null");
            }
            answer.set("settings", settings(definition));
            if (config.isObject()) {
                boolean isValid = validate(name, plugin, definition, config, answer);
                if (isValid && request.path("configure").isObject()) {
                    enter(name, "configure()");
                    Step.configure(plugin, request.path("configure").path("kind").asText(), Json.texts(config),
                        request.path("configure").path("is_key").asBoolean());
                }
            }
        } catch (Throwable failure) {
            answer.set("error", error(failure));
        }
        write(answer);
    }

    static ConfigDef definition(Object plugin) {
        if (plugin instanceof Connector connector) {
            return connector.config();
        }
        if (plugin instanceof Transformation<?> transformation) {
            return transformation.config();
        }
        if (plugin instanceof Predicate<?> predicate) {
            return predicate.config();
        }
        if (plugin instanceof HeaderConverter converter) {
            return converter.config();
        }
        if (plugin instanceof Converter converter) {
            return converter.config();
        }
        throw new IllegalArgumentException("it is no plugin of Kafka Connect");
    }

    static ArrayNode settings(ConfigDef definition) {
        ArrayNode settings = JSON.createArrayNode();
        List<String> groups = definition.groups();
        Map<String, ConfigValue> values = new HashMap<>();
        try {
            for (ConfigValue each : definition.validate(Map.of())) {
                values.put(each.name(), each);
            }
        } catch (RuntimeException ignored) {
            // a recommender or validator that needs settings: there are no recommended values
        }
        for (ConfigDef.ConfigKey key : definition.configKeys().values()) {
            ObjectNode setting = settings.addObject();
            setting.put("name", key.name);
            setting.put("type", key.type().name());
            setting.put("required", !key.hasDefault());
            if (key.hasDefault() && key.defaultValue != null) {
                setting.put("default", text(key.defaultValue, key.type()));
            }
            setting.put("importance", key.importance.name());
            setting.put("documentation", shortened(key.documentation));
            setting.put("group", key.group);
            setting.put("group_order", key.group == null ? -1 : groups.indexOf(key.group));
            setting.put("order", key.orderInGroup);
            setting.put("width", key.width.name());
            setting.put("display_name", key.displayName);
            ArrayNode dependents = setting.putArray("dependents");
            key.dependents.forEach(dependents::add);
            ConfigValue value = values.get(key.name);
            addRecommended(setting, value, key.type());
            if (key.validator != null) {
                setting.put("valid", shortened(String.valueOf(key.validator)));
            }
        }
        return settings;
    }

    private boolean validate(
            String name, Object plugin, ConfigDef definition, JsonNode config, ObjectNode answer) {
        Map<String, String> settings = new HashMap<>();
        config.properties().forEach(
                each -> settings.put(each.getKey(), each.getValue().isNull() ? null : each.getValue().asText()));
        enter(name, "validate()");
        List<ConfigValue> values;
        if (plugin instanceof Connector connector) {
            Config validated = connector.validate(settings);
            if (validated == null) {
                throw new IllegalStateException("validate() returned null");
            }
            values = validated.configValues();
        } else {
            values = definition.validate(settings);
        }
        Map<String, ConfigDef.ConfigKey> keys = definition.configKeys();
        ArrayNode validated = answer.putArray("values");
        for (ConfigValue each : values) {
            ConfigDef.ConfigKey key = keys.get(each.name());
            ConfigDef.Type type = key == null ? null : key.type();
            ObjectNode value = validated.addObject();
            value.put("name", each.name());
            value.put("value", each.value() == null ? null : text(each.value(), type));
            value.put("visible", each.visible());
            ArrayNode errors = value.putArray("errors");
            each.errorMessages().forEach(message -> errors.add(shortened(message)));
            addRecommended(value, each, type);
        }
        boolean valid = values.stream().allMatch(each -> each.errorMessages().isEmpty());
        if (valid && plugin instanceof SourceConnector source) {
            enter(name, "exactlyOnceSupport()");
            answer.put("exactly_once_support", name(source.exactlyOnceSupport(settings)));
            enter(name, "canDefineTransactionBoundaries()");
            answer.put("transaction_boundaries", name(source.canDefineTransactionBoundaries(settings)));
        }
        return valid;
    }

    private static String name(Enum<?> value) {
        return value == null ? null : value.name();
    }

    private static void addRecommended(ObjectNode to, ConfigValue value, ConfigDef.Type type) {
        ArrayNode recommended = to.putArray("recommended_values");
        if (value == null || type == ConfigDef.Type.PASSWORD) {
            return;
        }
        value.recommendedValues().stream().limit(RECOMMENDED_MAX)
                .forEach(each -> recommended.add(text(each, type)));
    }

    /** A value as a config writes it; passwords are masked. */
    private static String text(Object value, ConfigDef.Type type) {
        if (value instanceof Password || type == ConfigDef.Type.PASSWORD) {
            return MASK;
        }
        try {
            return shortened(type == null ? String.valueOf(value) : ConfigDef.convertToString(value, type));
        } catch (RuntimeException otherType) {
            return shortened(String.valueOf(value));
        }
    }

    private ObjectNode error(Throwable failure) {
        Throwable cause = failure;
        while ((cause instanceof ExceptionInInitializerError
                        || cause instanceof java.lang.reflect.InvocationTargetException)
                && cause.getCause() != null) {
            cause = cause.getCause();
        }
        ObjectNode error = JSON.createObjectNode();
        error.put("phase", phase);
        error.put("type", cause.getClass().getName());
        error.put("message", shortened(cause.getMessage()));
        for (Throwable each : Failures.causes(cause)) {
            if (!(each instanceof NoClassDefFoundError || each instanceof ClassNotFoundException)) {
                continue;
            }
            String name = shortened(each.getMessage());
            if (name.startsWith(FAILED_BEFORE)) { // it is there, but its static initializer failed
                error.put("type", "").put("message", shortened(Failures.message(each)));
            } else {
                error.put("missing_class", name.replace('/', '.'));
            }
        }
        return error;
    }

    private void enter(String name, String newPhase) {
        phase = newPhase;
        write(JSON.createObjectNode().put("class", name).put("phase", newPhase));
    }

    private void write(ObjectNode answer) {
        answers.println(token + answer);
    }

    private static String shortened(String text) {
        if (text == null) {
            return "";
        }
        return text.length() > TEXT_MAX ? text.substring(0, TEXT_MAX) : text;
    }
}
