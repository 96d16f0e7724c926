"""Makes the Python class of a class of a Java plugin."""

from types import new_class
from typing import Any

from drover.java_plugins.catalogue import JavaClass


def python_class(
    java_class: JavaClass, base: type[Any], *, in_engine: bool, **attributes: Any
) -> type[Any]:
    """A subclass of ``base`` with the name of a Java class.

    Args:
        java_class: The Java class; its version is the class's.
        base: A connector, converter, transform or predicate in Java.
        in_engine: Whether it is for running connectors, whose configs were validated.
        attributes: Further attributes of the class.
    """
    package, _, simple = java_class.name.rpartition(".")
    return new_class(
        simple,
        (base,),
        exec_body=lambda body: body.update(
            java_class=java_class,
            in_engine=in_engine,
            version=java_class.version or "unknown",
            __module__=package,
            __doc__=f"The class {java_class.name} of the Java plugin {java_class.plugin}.",
            **attributes,
        ),
    )
