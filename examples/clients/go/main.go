// Calls a Drover cluster: prints its version, creates and lists a connector, and decodes an error.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	connectv1 "drover/api/connect/v1"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func main() {
	connection, err := grpc.NewClient(
		os.Args[1], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	client := connectv1.NewConnectServiceClient(connection)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()

	info, err := client.GetClusterInfo(ctx, &connectv1.GetClusterInfoRequest{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("version", info.GetVersion())

	name := os.Args[2]
	_, err = client.CreateConnector(ctx, &connectv1.CreateConnectorRequest{
		Name: name,
		Config: map[string]string{
			"connector.class": "DatagenSource", "quickstart": "orders", "topic": name},
		InitialState: connectv1.TargetState_TARGET_STATE_STOPPED,
	})
	if err != nil {
		log.Fatal(err)
	}
	page, err := client.ListConnectors(ctx, &connectv1.ListConnectorsRequest{PageSize: 1000})
	if err != nil {
		log.Fatal(err)
	}
	for _, each := range page.GetConnectors() {
		if each.GetName() == name {
			fmt.Println("made", each.GetName())
		}
	}

	_, err = client.GetConnector(ctx, &connectv1.GetConnectorRequest{Name: "no-such-connector"})
	told := status.Convert(err)
	for _, each := range told.Details() {
		if reason, ok := each.(*errdetails.ErrorInfo); ok {
			fmt.Println(told.Code(), reason.GetReason())
		}
	}
}
