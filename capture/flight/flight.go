// Package flight takes record batches over Arrow Flight (DoPut) and answers each when
// its samples are durable. What becomes of a sample, and by which bounds, is said by the
// [receive.Receiver] that it shares with HTTP.
//
// It speaks gRPC itself, as far as one method needs it, over the HTTP/2 of net/http: the
// gRPC library holds each message in memory as a whole, and a message here is a record
// batch of up to gigabytes, which goes to the spool as it comes in. Of Arrow's metadata
// nothing is believed: see internal/arrowmsg.
package flight

import (
	"net/http"
	"strings"
	"sync"
	"time"

	"hsx/capture/receive"
)

// The bounds of connections and streams, beside those of the receiver. With them the
// answers that wait take some 4 MiB a stream at most.
const (
	maxStreams        = 128 // at a time
	streamsOfOne      = 16  // of one connection
	maxPending        = 8   // batches of a stream that wait for their commit
	maxRows           = 1024
	maxIDs            = 128 << 10 // bytes of all ids of a batch
	window            = 1 << 20   // bytes of a connection that nobody read yet
	frame             = 256 << 10
	quiet             = 10 * time.Minute // between two batches of a stream
	pingAfter         = time.Minute      // without a frame, and so long for the answer
	writeTime         = 30 * time.Second // for a client to take what is sent
	fieldTime         = 30 * time.Second // for the metadata of a message to come in
	doPut             = "/arrow.flight.protocol.FlightService/DoPut"
	contentType       = "application/grpc"
	encodingHeader    = "Grpc-Encoding"
	acceptedEncodings = "Grpc-Accept-Encoding"
)

// server answers DoPut.
type server struct {
	to      *receive.Receiver
	streams chan struct{}
	stop    chan struct{} // closed when no stream should begin another batch
}

// New is the server that hands what it takes to r. To run it, give it to the Serve of r.
func New(r *receive.Receiver) *http.Server {
	s := &server{to: r, streams: make(chan struct{}, maxStreams), stop: make(chan struct{})}
	var protocols http.Protocols
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	srv := &http.Server{
		Handler: s, Protocols: &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streamsOfOne, MaxReadFrameSize: frame,
			MaxReceiveBufferPerConnection: window, MaxReceiveBufferPerStream: window,
			SendPingTimeout: pingAfter, PingTimeout: pingAfter, WriteByteTimeout: writeTime,
		},
	}
	srv.RegisterOnShutdown(sync.OnceFunc(func() { close(s.stop) }))
	return srv
}

func (s *server) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// ServeHTTP answers one call.
func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.ProtoMajor != 2 || req.Method != http.MethodPost || !strings.HasPrefix(req.Header.Get("Content-Type"), contentType) {
		http.Error(w, "want a gRPC call", http.StatusUnsupportedMediaType)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.Header().Set(acceptedEncodings, "identity")
	w.Header().Set("Trailer", statusTrailer+", "+messageTrailer)
	finish(w, s.call(w, req))
}

// call serves a call to its end, which is nil when the client ended it.
func (s *server) call(w http.ResponseWriter, req *http.Request) error {
	switch encoding := req.Header.Get(encodingHeader); {
	case !s.to.Authorised(req):
		return fail(unauthenticated, "bearer token is missing or wrong")
	case req.URL.Path != doPut:
		return fail(unimplemented, "method %s is not served, want DoPut", clip(req.URL.Path))
	case encoding != "" && encoding != "identity":
		return fail(unimplemented, "messages are compressed (%s), want them as they are", clip(encoding))
	}
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		return fail(exhausted, "%d streams are open, which is all: try again", maxStreams)
	}
	if err := http.NewResponseController(w).Flush(); err != nil { // clients may wait for the headers
		return err
	}
	return newPut(s, w, req).run()
}
