"""Entry points for real robots: collect, deploy, replay. They drive any robot and teleoperator that lerobot knows, and a simulated one."""
