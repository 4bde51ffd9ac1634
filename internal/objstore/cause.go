package objstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"

	"github.com/aws/aws-sdk-go-v2/aws/retry"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// errPrecondition is the answer to a conditional request whose condition is not met.
var errPrecondition = errors.New("condition of the request is not met")

// refusal is an answer that would be the same tomorrow: somebody has to do something.
type refusal struct {
	text string
	err  error // may be nil
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.err }

func refuse(format string, args ...any) error { return &refusal{text: fmt.Sprintf(format, args...)} }

// noCredentials marks what went wrong before anything was sent.
type noCredentials struct{ error }

func (n noCredentials) Unwrap() error { return n.error }

// cause finds the sentence in an error of the clients, which wrap it many times and
// repeat what was asked for.
func (s *Store) cause(err error) error {
	var tries *retry.MaxAttemptsError
	if errors.As(err, &tries) {
		return fmt.Errorf("gave up after %d attempts: %w", tries.Attempt, s.cause(tries.Err))
	}
	var known *refusal
	if errors.As(err, &known) {
		return known
	}
	var short *shortError
	if errors.As(err, &short) || errors.Is(err, fs.ErrExist) {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return root(err)
	}
	if cause := s.vendor.cause(err); cause != nil {
		return cause
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return fmt.Errorf("host %s of the endpoint cannot be found: %s", dns.Name, dns.Err)
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return fmt.Errorf("endpoint cannot be reached: %w", op)
	}
	if err = root(err); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("connection was cut") // not wrapped: it is not the object that ended
	}
	return err
}

// root is the first error that is not one of the clients' wrappers.
func root(err error) error {
	for {
		var inner error
		switch e := err.(type) { //nolint:errorlint // each wrapper is taken off in turn
		case *smithy.OperationError:
			inner = e.Err
		case *awshttp.ResponseError:
			inner = e.Err
		case *smithyhttp.ResponseError:
			inner = e.Err
		case *smithyhttp.RequestSendError:
			inner = e.Err
		case *url.Error:
			inner = e.Err
		case interface{ Unwrap() []error }:
			if wrapped := e.Unwrap(); len(wrapped) > 0 {
				inner = wrapped[0] // the code of gocloud.dev comes after
			}
		}
		if inner == nil {
			return err
		}
		err = inner
	}
}
