package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	namespacepb "go.temporal.io/api/namespace/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"
)

// searchAttributes are what workflows upsert. A workflow that upserts an
// unknown one is stuck, not failed, so they exist before anybody can connect.
func searchAttributes() map[string]enumspb.IndexedValueType {
	return map[string]enumspb.IndexedValueType{
		"RunID": enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"Stage": enumspb.INDEXED_VALUE_TYPE_KEYWORD,
		"Step":  enumspb.INDEXED_VALUE_TYPE_INT,

		"Reward":    enumspb.INDEXED_VALUE_TYPE_DOUBLE,
		"RunStatus": enumspb.INDEXED_VALUE_TYPE_KEYWORD,
	}
}

// configureNamespace waits for the frontend and brings a namespace of an
// earlier start to the retention and search attributes of this one.
func configureNamespace(ctx context.Context, o options) (err error) {
	conn, err := grpc.NewClient(o.frontend(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	workflows := workflowservice.NewWorkflowServiceClient(conn)
	var have *workflowservice.DescribeNamespaceResponse
	if err := poll(ctx, func() (err error) {
		have, err = workflows.DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: o.namespace})
		return err
	}); err != nil {
		return fmt.Errorf("frontend %s: %w", o.frontend(), err)
	}
	if have.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration() != o.retention {
		if _, err := workflows.UpdateNamespace(ctx, &workflowservice.UpdateNamespaceRequest{
			Namespace: o.namespace,
			Config:    &namespacepb.NamespaceConfig{WorkflowExecutionRetentionTtl: durationpb.New(o.retention)},
		}); err != nil {
			return fmt.Errorf("set retention of namespace %s: %w", o.namespace, err)
		}
	}
	return addSearchAttributes(ctx, o.namespace, operatorservice.NewOperatorServiceClient(conn), workflows)
}

// addSearchAttributes registers what is missing and returns when a query can use all of them.
func addSearchAttributes(ctx context.Context, namespace string,
	operator operatorservice.OperatorServiceClient, workflows workflowservice.WorkflowServiceClient,
) error {
	have, err := operator.ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return fmt.Errorf("list search attributes: %w", err)
	}
	missing := searchAttributes()
	for name, typ := range have.GetCustomAttributes() {
		if want, ours := missing[name]; ours && want != typ {
			return fmt.Errorf("search attribute %s of namespace %s is %v, want %v", name, namespace, typ, want)
		}
	}
	maps.DeleteFunc(missing, func(name string, _ enumspb.IndexedValueType) bool {
		_, ok := have.GetCustomAttributes()[name]
		return ok
	})
	if len(missing) == 0 {
		return nil
	}
	if _, err := operator.AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: namespace, SearchAttributes: missing,
	}); err != nil {
		return fmt.Errorf("add search attributes: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return poll(ctx, func() error {
		_, err := workflows.CountWorkflowExecutions(ctx, &workflowservice.CountWorkflowExecutionsRequest{
			Namespace: namespace, Query: "RunID = 'none' AND Stage = 'none' AND Step = -1 AND Reward = -1.0 AND RunStatus = 'none'",
		})
		return err
	})
}
