"""The phases of a task: which operation its thread executes, so which event comes next."""

from enum import StrEnum


class Phase(StrEnum):
    """A task executes at most one operation at a time.

    RESTING is the time between two runs; OVER has no way out. The other phases are named after
    their operation.
    """

    NEW = "NEW"
    RESTING = "RESTING"
    #: After a failure: whether the claim is still current.
    CHECKING_CLAIM_AFTER_FAILURE = "CHECKING_CLAIM_AFTER_FAILURE"
    #: The task object is stopped, because the task starts again from its committed offsets.
    STOPPING_INSTANCE = "STOPPING_INSTANCE"
    STARTING_INSTANCE = "STARTING_INSTANCE"
    #: A stop waits for the commits of the last batches.
    AWAITING_COMMITS = "AWAITING_COMMITS"
    OVER = "OVER"

    # Sinks: the start
    IDENTIFYING_COMMITTED_TOPICS = "IDENTIFYING_COMMITTED_TOPICS"
    BEGINNING_REPLAY = "BEGINNING_REPLAY"
    # new partitions
    FINDING_TOPICS = "FINDING_TOPICS"
    COUNTING_PARTITIONS = "COUNTING_PARTITIONS"
    IDENTIFYING_NEW_TOPICS = "IDENTIFYING_NEW_TOPICS"
    FINDING_ENDS = "FINDING_ENDS"
    # topics that were created again
    COMPARING_TOPICS = "COMPARING_TOPICS"
    COMPARING_TOPICS_OF_PLAN = "COMPARING_TOPICS_OF_PLAN"
    COMPARING_TOPICS_AFTER_LOSS = "COMPARING_TOPICS_AFTER_LOSS"
    # offsets that the brokers would remove
    READING_RETENTION = "READING_RETENTION"
    IDENTIFYING_PRESENT_TOPICS = "IDENTIFYING_PRESENT_TOPICS"
    COUNTING_PRESENT_PARTITIONS = "COUNTING_PRESENT_PARTITIONS"
    FETCHING_PRESENT_OFFSETS = "FETCHING_PRESENT_OFFSETS"
    # starts
    TRACING_OUTPUT = "TRACING_OUTPUT"
    GETTING_FIRST_METADATA = "GETTING_FIRST_METADATA"
    # a batch
    READING_REQUESTS = "READING_REQUESTS"
    PLANNING_REPLAY = "PLANNING_REPLAY"
    PLANNING = "PLANNING"
    LOOKING_FOR_MORE = "LOOKING_FOR_MORE"
    MEASURING_LAG = "MEASURING_LAG"
    READING_CLAIM = "READING_CLAIM"
    CONFIRMING_CLAIM = "CONFIRMING_CLAIM"
    WRITING = "WRITING"
    PUBLISHING_LETTERS = "PUBLISHING_LETTERS"
    READING_CLAIM_FOR_IDLE = "READING_CLAIM_FOR_IDLE"
    CONFIRMING_CLAIM_FOR_IDLE = "CONFIRMING_CLAIM_FOR_IDLE"
    CALLING_IDLE = "CALLING_IDLE"

    # Sources: the start
    AWAITING_TRANSACTION_TO_START = "AWAITING_TRANSACTION_TO_START"
    #: The steps by which the task becomes the only one that publishes.
    TAKING_STEP = "TAKING_STEP"
    FETCHING_OFFSETS = "FETCHING_OFFSETS"
    FINDING_STARTS = "FINDING_STARTS"
    # a batch
    NOTIFYING = "NOTIFYING"
    PLANNING_LETTERS = "PLANNING_LETTERS"
    CHECKING_LETTERS = "CHECKING_LETTERS"
    STAGING_LETTERS = "STAGING_LETTERS"
    POLLING = "POLLING"
    STAGING = "STAGING"
    PUBLISHING = "PUBLISHING"
    #: A batch could not be made; the one that is being published is not repeated.
    AWAITING_TRANSACTION_AFTER_FAILURE = "AWAITING_TRANSACTION_AFTER_FAILURE"
    #: A stop waits for the transaction in progress.
    AWAITING_TRANSACTION_TO_STOP = "AWAITING_TRANSACTION_TO_STOP"
    #: A stop acknowledges the batches that were committed since the last run.
    NOTIFYING_AT_STOP = "NOTIFYING_AT_STOP"
