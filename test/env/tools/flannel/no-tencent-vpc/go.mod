// Stands for the API of Tencent Cloud's networks, which Flannel's back end for that cloud imports and which module
// proxies may not serve. Nothing here calls it.
module github.com/tencentcloud/tencentcloud-sdk-go/tencentcloud/vpc

go 1.26.0
