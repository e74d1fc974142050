"""One module per API of the broker's listeners, in alphabetical order: what stands here is offered to clients."""

from broker.server.handlers import api_versions as api_versions
from broker.server.handlers import delete_groups as delete_groups
from broker.server.handlers import delete_records as delete_records
from broker.server.handlers import describe_groups as describe_groups
from broker.server.handlers import describe_log_dirs as describe_log_dirs
from broker.server.handlers import describe_producers as describe_producers
from broker.server.handlers import fetch as fetch
from broker.server.handlers import heartbeat as heartbeat
from broker.server.handlers import join_group as join_group
from broker.server.handlers import leave_group as leave_group
from broker.server.handlers import list_groups as list_groups
from broker.server.handlers import list_offsets as list_offsets
from broker.server.handlers import offset_commit as offset_commit
from broker.server.handlers import offset_delete as offset_delete
from broker.server.handlers import offset_fetch as offset_fetch
from broker.server.handlers import offset_for_leader_epoch as offset_for_leader_epoch
from broker.server.handlers import produce as produce
from broker.server.handlers import sync_group as sync_group
from broker.server.handlers import write_txn_markers as write_txn_markers
