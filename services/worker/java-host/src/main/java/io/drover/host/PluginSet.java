package io.drover.host;

import java.io.IOException;
import java.net.URL;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.stream.Stream;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.connect.connector.Connector;
import org.apache.kafka.connect.runtime.ConnectMetrics;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.runtime.isolation.LoaderSwap;
import org.apache.kafka.connect.runtime.isolation.PluginClassLoader;
import org.apache.kafka.connect.runtime.isolation.PluginUtils;
import org.apache.kafka.connect.runtime.isolation.Plugins;
import org.apache.kafka.connect.runtime.standalone.StandaloneConfig;
import org.apache.maven.artifact.versioning.VersionRange;

/** The plugins that this host has loaded. */
final class PluginSet {
    /** How often a sink task without new records may commit, as offset.flush.interval.ms. */
    private static final String COMMIT_INTERVAL_MS = "2000";
    final WorkerConfig workerConfig;
    final ConnectMetrics metrics;
    private final String pluginPath;
    private volatile Plugins plugins;
    private final Map<String, ClassLoader> folderLoaders = new HashMap<>();
    private boolean isScanned;

    PluginSet(String pluginPath) {
        this.pluginPath = pluginPath;
        plugins = new Plugins(settings("service_load"));
        Map<String, String> settings = settings("service_load");
        plugins.compareAndSwapWithDelegatingLoader();
        workerConfig = new StandaloneConfig(settings);
        metrics = new ConnectMetrics("drover", workerConfig, Time.SYSTEM, "drover");
    }

    private Map<String, String> settings(String discovery) {
        Map<String, String> settings = new HashMap<>();
        settings.put("plugin.path", pluginPath);
        settings.put("plugin.discovery", discovery);
        settings.put("bootstrap.servers", "unused:1");
        settings.put("key.converter", "org.apache.kafka.connect.json.JsonConverter");
        settings.put("value.converter", "org.apache.kafka.connect.json.JsonConverter");
        settings.put("offset.storage.file.filename", "/dev/null");
        settings.put("offset.flush.interval.ms", COMMIT_INTERVAL_MS);
        settings.put("topic.tracking.enable", "false");
        settings.put("topic.creation.enable", "false");
        settings.put("metric.reporters", "");
        return settings;
    }

    Plugins plugins() {
        return plugins;
    }

    /** The loader of a connector; a plugin without service manifests is scanned once. */
    synchronized ClassLoader loader(String className, VersionRange range) throws ClassNotFoundException {
        try {
            plugins.connectorClass(className, range);
        } catch (Exception missing) {
            if (isScanned) {
                throw missing;
            }
            scan();
            plugins.connectorClass(className, range);
        }
        return plugins.connectorLoader(className, range);
    }

    /** The loader of a task's connector, where the classes of its steps are found too. */
    synchronized ClassLoader taskLoader(Map<String, String> config) throws Exception {
        String name = config.get("connector.class");
        ClassLoader loader = loader(name, range(config));
        if (!isScanned && !steps(config).entrySet().stream().allMatch(each ->
                each.getValue() ? isRegistered(each.getKey()) : isFound(each.getKey(), loader))) {
            scan();
            return loader(name, range(config));
        }
        return loader;
    }

    private void scan() {
        isScanned = true;
        plugins = new Plugins(settings("only_scan"));
    }

    /** The converters, transforms and predicates that a config names, with whether it wants a version of them. */
    private static Map<String, Boolean> steps(Map<String, String> config) {
        Map<String, Boolean> found = new LinkedHashMap<>();
        for (String each : List.of("key.converter", "value.converter", "header.converter")) {
            addStep(config, each, each, found);
        }
        for (String kind : List.of("transforms", "predicates")) {
            for (String alias : config.getOrDefault(kind, "").split(",")) {
                String prefix = kind + "." + alias.trim();
                addStep(config, prefix + ".type", prefix, found);
            }
        }
        return found;
    }

    private static void addStep(Map<String, String> config, String setting, String prefix, Map<String, Boolean> to) {
        if (config.get(setting) != null) {
            to.merge(config.get(setting), config.get(prefix + ".plugin.version") != null, Boolean::logicalOr);
        }
    }

    /** Whether Kafka Connect knows the versions of a class, as a service manifest or a scan has shown it. */
    private boolean isRegistered(String className) {
        return Stream.of(plugins.converters(), plugins.headerConverters(), plugins.transformations(), plugins.predicates())
            .flatMap(Set::stream).anyMatch(each -> each.className().equals(className));
    }

    private boolean isFound(String className, ClassLoader loader) {
        for (ClassLoader each : List.of(loader, plugins.delegatingLoader())) {
            try {
                Class.forName(className, false, each);
                return true;
            } catch (ClassNotFoundException | LinkageError missing) {
                // the other loader may have it
            }
        }
        return false;
    }

    /** The loader of the plugin in a folder or jar, whatever classes it declares; that of Kafka's own for none. */
    ClassLoader folderLoader(String path) throws IOException {
        if (path.isEmpty()) {
            return PluginSet.class.getClassLoader();
        }
        synchronized (folderLoaders) {
            ClassLoader found = folderLoaders.get(path);
            if (found == null) {
                found = pluginLoader(Path.of(path));
                folderLoaders.put(path, found);
            }
            return found;
        }
    }

    /** A new loader of the plugin in a folder or jar. */
    static ClassLoader pluginLoader(Path plugin) throws IOException {
        List<Path> jars = PluginUtils.pluginUrls(plugin);
        URL[] urls = new URL[jars.size()];
        for (int index = 0; index < urls.length; index++) {
            urls[index] = jars.get(index).toUri().toURL();
        }
        return new PluginClassLoader(plugin.toUri().toURL(), urls, PluginSet.class.getClassLoader());
    }

    static VersionRange range(Map<String, String> config) throws Exception {
        return PluginUtils.connectorVersionRequirement(config.get("connector.plugin.version"));
    }

    Connector newConnector(Map<String, String> config) throws Exception {
        String name = config.get("connector.class");
        VersionRange range = range(config);
        return within(loader(name, range), () -> plugins.newConnector(name, range));
    }

    /** Calls a plugin with its class loader as that of the thread. */
    <T> T within(ClassLoader loader, Callable<T> call) throws Exception {
        try (LoaderSwap swap = plugins.withClassLoader(loader)) {
            return call.call();
        }
    }
}
