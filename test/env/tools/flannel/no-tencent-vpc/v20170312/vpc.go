// Package v20170312 has the names of Tencent Cloud's API that Flannel's back end for that cloud uses, so that Flannel
// compiles. Each call fails.
package v20170312

import "errors"

var errMissing = errors.New("this Flannel was built without Tencent Cloud's API")

// Filter selects route tables.
type Filter struct {
	Name   *string
	Values []*string
}

// Route is a route of a route table.
type Route struct {
	RouteId, DestinationCidrBlock, GatewayType, GatewayId, RouteType *string //nolint:revive,staticcheck // Tencent's name
	Enabled                                                          *bool
}

// RouteTable is a route table.
type RouteTable struct {
	RouteTableId *string //nolint:revive,staticcheck // Tencent's name
	RouteSet     []*Route
}

// Request is what each call takes.
type Request struct {
	Filters      []*Filter
	RouteTableId *string //nolint:revive,staticcheck // Tencent's name
	Routes       []*Route
}

// Response is what each call returns.
type Response struct {
	Response struct{ RouteTableSet []*RouteTable }
}

// NewDescribeRouteTablesRequest returns an empty request.
func NewDescribeRouteTablesRequest() *Request { return &Request{} }

// NewDeleteRoutesRequest returns an empty request.
func NewDeleteRoutesRequest() *Request { return &Request{} }

// NewCreateRoutesRequest returns an empty request.
func NewCreateRoutesRequest() *Request { return &Request{} }

// Client calls nothing.
type Client struct{}

// NewClientWithSecretId always returns an error.
func NewClientWithSecretId(_, _, _ string) (*Client, error) { //nolint:revive,staticcheck // Tencent's name
	return &Client{}, errMissing
}

// DescribeRouteTables always returns an error.
func (*Client) DescribeRouteTables(*Request) (*Response, error) { return nil, errMissing }

// DeleteRoutes always returns an error.
func (*Client) DeleteRoutes(*Request) (*Response, error) { return nil, errMissing }

// CreateRoutes always returns an error.
func (*Client) CreateRoutes(*Request) (*Response, error) { return nil, errMissing }
