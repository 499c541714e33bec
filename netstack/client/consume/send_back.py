"""Failed messages: sent back to the broker, else sent to the retry topic, else delivered here again.

Source: RocketMQ 4.9.8 DefaultMQPushConsumerImpl.sendMessageBack.
"""

import logging

from netstack.client.compression import COMPRESSION_BITS
from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.errors import BodyUnreadable, BrokerUnknown, ClientError
from netstack.client.instance import INNER_PRODUCER, Instance
from netstack.client.messages import Message, ReceivedMessage
from netstack.client.produce.sending import Sender
from netstack.client.send_request import ProducerOptions
from netstack.client.text import RETRY
from netstack.wire.codes import RequestCode
from netstack.wire.headers import SendBackHeader

SEND_BACK_S = 5.0
_log = logging.getLogger("netstack.client")


class SendBack:
    def __init__(self, instance: Instance, group: str, options: ConsumerOptions) -> None:
        self._instance, self._group, self._options = instance, group, options
        self._inner = Sender(instance, INNER_PRODUCER, ProducerOptions(timeout_s=SEND_BACK_S))

    async def send_back(self, message: ReceivedMessage, delay_level: int) -> bool:
        """Have a message delivered again, to any member; False if that failed."""
        header = SendBackHeader(
            message.log_offset,
            self._group,
            delay_level,
            message.message_id,
            message.topic,
            False,
            self._options.reconsume_limit,
        )
        try:
            address = self._instance.addresses_of(message.broker_name).get(0)
            if address is None:
                raise BrokerUnknown(message.broker_name)
            await self._instance.ask_ok(address, RequestCode.CONSUMER_SEND_MSG_BACK, header, timeout_s=SEND_BACK_S)
        except ClientError as error:
            _log.warning("event=send_back_failed message=%r reason=%s", message, error)
            return await self.send_to_retry(message, self._options.reconsume_limit, 3 + message.reconsume_times)
        return True

    async def send_to_retry(self, message: ReceivedMessage, limit: int, delay_level: int) -> bool:
        """Send the message into the group's retry topic; a broker makes it a dead letter when the limit is reached."""
        properties = {name: value for name, value in message.properties.items() if name != "TRAN_MSG"}
        properties["RETRY_TOPIC"] = message.topic
        properties.setdefault("ORIGIN_MESSAGE_ID", message.message_id)
        properties["RECONSUME_TIME"] = str(message.reconsume_times + 1)
        properties["MAX_RECONSUME_TIMES"] = str(limit)
        properties["DELAY"] = str(delay_level)
        packed = 0
        try:
            body = message.body
        except BodyUnreadable:  # it travels on as it is, for a member that can read it
            body, packed = message.stored_body, message.sys_flag & COMPRESSION_BITS
        try:
            out = self._inner.make(Message(RETRY + self._group, body, properties=properties, flag=message.flag))
            if packed:
                out.body, out.sys_flag = body, packed
            await self._inner.send(out)
        except ClientError as error:
            _log.warning("event=retry_failed message=%r reason=%s", message, error)
            return False
        return True
