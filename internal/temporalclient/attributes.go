package temporalclient

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/serviceerror"
	"go.temporal.io/sdk/client"
)

// Attributes are search attributes by name.
type Attributes map[string]enums.IndexedValueType

// attributeWait bounds the wait until created attributes can be used; the
// server's cache takes a moment.
const attributeWait = 15 * time.Second

// EnsureAttributes creates the search attributes that the namespace lacks and
// waits until they can be used. It returns false without an error when this
// server lets clients neither create nor list them; runs go without then. An
// attribute of another type is an error: using it would block workflows.
func EnsureAttributes(ctx context.Context, c client.Client, namespace string, want Attributes) (bool, error) {
	lacking, err := missing(ctx, c, namespace, want)
	if notForUs(err) {
		return false, nil
	}
	if err != nil || len(lacking) == 0 {
		return err == nil, err
	}
	_, err = c.OperatorService().AddSearchAttributes(ctx, &operatorservice.AddSearchAttributesRequest{
		Namespace: namespace, SearchAttributes: lacking,
	})
	if notForUs(err) {
		return false, nil
	}
	var exists *serviceerror.AlreadyExists // another client was faster
	if err != nil && !errors.As(err, &exists) {
		return false, fmt.Errorf("create search attributes %v: %w", slices.Sorted(maps.Keys(lacking)), err)
	}
	return true, awaitAttributes(ctx, c, namespace, want)
}

func awaitAttributes(ctx context.Context, c client.Client, namespace string, want Attributes) error {
	ctx, cancel := context.WithTimeout(ctx, attributeWait)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		lacking, err := missing(ctx, c, namespace, want)
		if err == nil && len(lacking) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("search attributes %v of namespace %s did not appear: %w",
				slices.Sorted(maps.Keys(lacking)), namespace, errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

func missing(ctx context.Context, c client.Client, namespace string, want Attributes) (Attributes, error) {
	have, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: namespace})
	if err != nil {
		return nil, fmt.Errorf("list search attributes of namespace %s: %w", namespace, err)
	}
	lacking := Attributes{}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		kind, ok := have.GetCustomAttributes()[name]
		switch {
		case !ok:
			lacking[name] = want[name]
		case kind != want[name]:
			return nil, fmt.Errorf("search attribute %s of namespace %s is a %s, want %s", name, namespace, kind, want[name])
		}
	}
	return lacking, nil
}

// notForUs reports whether the server denies clients its operator service.
func notForUs(err error) bool {
	var denied *serviceerror.PermissionDenied
	var absent *serviceerror.Unimplemented
	return errors.As(err, &denied) || errors.As(err, &absent)
}
