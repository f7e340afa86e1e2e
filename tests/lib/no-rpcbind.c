/* Preloaded into the test NFS server: registering with rpcbind succeeds without an rpcbind. */
#include <stdbool.h>

bool svc_reg(void *xprt, unsigned long prog, unsigned long vers, void *dispatch, const void *conf);
void svc_unreg(unsigned long prog, unsigned long vers);

bool svc_reg(void *xprt, unsigned long prog, unsigned long vers, void *dispatch, const void *conf)
{
	(void)xprt;
	(void)prog;
	(void)vers;
	(void)dispatch;
	(void)conf;
	return true;
}

void svc_unreg(unsigned long prog, unsigned long vers)
{
	(void)prog;
	(void)vers;
}
