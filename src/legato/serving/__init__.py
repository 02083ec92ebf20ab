"""Audio chunks → transports: HTTP routes, audio formats, and the page. The only asyncio in the house."""
