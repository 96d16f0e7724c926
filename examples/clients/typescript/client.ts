// Calls a Drover cluster: prints its version, creates and lists a connector, and decodes an error.
import { credentials, type ServiceError, status } from "@grpc/grpc-js";
import { ConnectServiceClient, TargetState } from "./drover/api/connect/v1/connect_service.js";
import { ErrorInfo } from "./google/rpc/error_details.js";
import { Status } from "./google/rpc/status.js";

const [address, name] = process.argv.slice(2);
const client = new ConnectServiceClient(address, credentials.createInsecure());

/** Converts a callback-style call to a promise of its response. */
function called<A>(call: (done: (error: ServiceError | null, answer: A) => void) => void): Promise<A> {
  return new Promise((resolve, reject) =>
    call((error, answer) => (error ? reject(error) : resolve(answer))));
}

const info = await called<{ version: string }>((done) => client.getClusterInfo({}, done));
console.log("version", info.version);

await called((done) =>
  client.createConnector(
    {
      name,
      config: { "connector.class": "DatagenSource", quickstart: "orders", topic: name },
      initialState: TargetState.TARGET_STATE_STOPPED,
      requestId: "",
    },
    done,
  ));
const page = await called<{ connectors: { name: string }[] }>((done) =>
  client.listConnectors(
    { pageSize: 1000, pageToken: "", includeConfig: false, includeStatus: false },
    done,
  ));
for (const each of page.connectors) {
  if (each.name === name) console.log("made", each.name);
}

try {
  await called((done) => client.getConnector({ name: "no-such-connector" }, done));
} catch (error) {
  const { code, metadata } = error as ServiceError;
  for (const raw of metadata.get("grpc-status-details-bin")) {
    for (const detail of Status.decode(raw as Buffer).details) {
      if (detail.typeUrl.endsWith("/google.rpc.ErrorInfo")) {
        console.log(status[code], ErrorInfo.decode(detail.value).reason);
      }
    }
  }
}
client.close();
