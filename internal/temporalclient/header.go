package temporalclient

import (
	"context"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

// resourceHeader is where the SDK repeats the workflow id of a call. A header has
// printable ASCII only, an id has any letters: without printableID a workflow with
// such an id could be started over HTTP, and no worker could answer it.
const resourceHeader = "temporal-resource-id"

// printableID writes other letters in the header as a URL does. The id in the call
// itself stays as it is.
func printableID(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	if headers, ok := metadata.FromOutgoingContext(ctx); ok && len(headers.Get(resourceHeader)) > 0 {
		values := headers.Get(resourceHeader)
		headers.Delete(resourceHeader)
		for _, value := range values {
			if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
				value = url.PathEscape(value)
			}
			headers.Append(resourceHeader, value)
		}
		ctx = metadata.NewOutgoingContext(ctx, headers)
	}
	return call(ctx, method, req, reply, conn, options...)
}
