"""Well-known converters of other products, and what does their job here."""

from drover.config.other_classes import OtherClasses

CONVERTERS_ELSEWHERE = (
    OtherClasses(
        ("JsonSchemaConverter",),
        "reads and writes JSON with schemas of a registry",
    ),
    OtherClasses(
        ("AvroConverter",),
        "",
        "AvroConverter with the registry's API of Confluent's Schema Registry (/apis/ccompat/v7)",
        "io.apicurio.",
    ),
    OtherClasses(
        ("ExtJsonConverter", "JsonSchemaKafkaConverter"),
        "reads and writes JSON with schemas of a registry",
    ),
    OtherClasses(
        ("AWSKafkaAvroConverter", "AWSKafkaJsonSchemaConverter", "AWSKafkaProtobufConverter"),
        "uses the registry of AWS Glue",
    ),
    OtherClasses(("ByteArrayConverter", "BinaryDataConverter"), "", "ByteArrayConverter"),
    OtherClasses(("CloudEventsConverter",), "reads and writes CloudEvents"),
    OtherClasses(("ProtobufConverter",), "", "ProtobufConverter, which needs a schema registry"),
    OtherClasses(
        (
            "CborConverter",
            "BsonConverter",
            "XmlConverter",
            "MessagePackConverter",
            "ThriftConverter",
        ),
        "reads and writes that format",
    ),
)
